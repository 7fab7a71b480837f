// The Function App on the Flex Consumption plan.
param name string
param planName string
param location string
param tags object

@description('Resource id of the app\'s identity.')
param identityId string
param identityClientId string

param storageAccountName string

@description('Where the deployed package lies.')
param deploymentContainerUrl string

param insightsConnectionString string

@description('Of the Durable Task Scheduler; empty: the storage account keeps the orchestrations.')
param schedulerEndpoint string

param instanceMemoryMB int
param maximumInstanceCount int
param alwaysReadyHttp int
param alwaysReadyDurable int

@description('The app\'s own settings. They win over none of those below.')
param appSettings object

// The host and the app read the same settings: docs/settings.md, "Storage by an identity".
var storageSettings = {
  AzureWebJobsStorage__accountName: storageAccountName
  AzureWebJobsStorage__credential: 'managedidentity'
  AzureWebJobsStorage__clientId: identityClientId
}

var monitoringSettings = {
  APPLICATIONINSIGHTS_CONNECTION_STRING: insightsConnectionString
  APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${identityClientId};Authorization=AAD'
}

// Over host.json, which names Azure Storage. The scale controller reads host.json alone: docs/deploying.md.
var schedulerSettings = empty(schedulerEndpoint) ? {} : {
  DURABLE_TASK_SCHEDULER_CONNECTION_STRING: 'Endpoint=${schedulerEndpoint};Authentication=ManagedIdentity;ClientID=${identityClientId}'
  AzureFunctionsJobHost__extensions__durableTask__storageProvider__type: 'azureManaged'
  AzureFunctionsJobHost__extensions__durableTask__storageProvider__connectionStringName: 'DURABLE_TASK_SCHEDULER_CONNECTION_STRING'
}

var scaleGroups = [
  { name: 'http', instanceCount: alwaysReadyHttp }
  { name: 'durable', instanceCount: alwaysReadyDurable }
]

var alwaysReady = filter(scaleGroups, group => group.instanceCount > 0)

resource plan 'Microsoft.Web/serverfarms@2024-04-01' = {
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
  }
}

resource app 'Microsoft.Web/sites@2024-04-01' = {
  name: name
  location: location
  tags: tags
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    // As whom `@Microsoft.KeyVault(...)` in a setting is read.
    keyVaultReferenceIdentity: identityId
    siteConfig: {
      minTlsVersion: '1.2'
      ftpsState: 'Disabled'
    }
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: deploymentContainerUrl
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      runtime: {
        name: 'python'
        version: '3.13'
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
        alwaysReady: alwaysReady
      }
    }
  }

  resource settings 'config' = {
    name: 'appsettings'
    properties: union(appSettings, storageSettings, monitoringSettings, schedulerSettings)
  }
}

output name string = app.name
output url string = 'https://${app.properties.defaultHostName}'
