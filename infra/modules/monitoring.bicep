// Application Insights over a Log Analytics workspace, and the workbook; telemetry is taken from the app's identity only.
param workspaceName string
param insightsName string
param location string
param tags object

@description('Days that logs and telemetry are kept.')
param retentionDays int

@description('Of the app\'s identity.')
param principalId string

var roles = {
  telemetry: '3913510d-42f4-4e42-8a64-420c390055eb' // Monitoring Metrics Publisher
}

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: retentionDays
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: insightsName
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(insights.id, 'durable-retry')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Durable Retry'
    category: 'workbook'
    sourceId: insights.id
    serializedData: loadTextContent('../monitoring/workbook.json')
  }
}

resource access 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(insights.id, principalId, roles.telemetry)
  scope: insights
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles.telemetry)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}

output connectionString string = insights.properties.ConnectionString
output workspaceId string = workspace.id
